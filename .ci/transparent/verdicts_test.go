package main

import (
	"slices"
	"testing"
)

func TestDifferingReturnsTheInnermostTests(t *testing.T) {
	bare := parse([]byte(`FAIL	example.test/broken [build failed]
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/sub/x"}
{"Action":"pass","Package":"p","Test":"TestA/sub/x"}
{"Action":"pass","Package":"p","Test":"TestA/sub"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p"}
{"Action":"pass","Package":"q","Test":"TestC"}
{"Action":"pass","Package":"q"}
`))
	guarded := parse([]byte(`{"Action":"run","Package":"p","Test":"TestA/sub/x"}
{"Action":"fail","Package":"p","Test":"TestA/sub"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
{"Action":"pass","Package":"q"}
`))

	want := []test{{"p", "TestA/sub/x"}, {"q", "TestC"}}
	if got := bare.differing(guarded); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := bare.differing(bare); len(got) != 0 {
		t.Errorf("the same verdicts differ: %q", got)
	}
	if got := bare.passed(); got != 6 {
		t.Errorf("%d passed", got)
	}
}
