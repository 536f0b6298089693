package main

import (
	"archive/zip"
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/seed8d1e2389/resilience/ci/modules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// library is a small repository that is ready for a release.
var library = map[string]string{
	"LICENSE":      "MIT\n",
	".gitignore":   "*.out\n",
	"CHANGELOG.md": "# Changelog\n\n## [0.1.0] - Unreleased\n\nNews.\n",
	"README.md":    "    go get example.test/lib\n    go get example.test/lib/adapters/x@latest  # the adapter\n",
	"go.mod":       "module example.test/lib\n\ngo 1.25.0\n",
	"lib.go":       "package lib\n\nconst Name = \"lib\"\n",
	"cover.out":    "ignored by git\n",

	"adapters/x/go.mod": "module example.test/lib/adapters/x\n\ngo 1.25.0\n\n" +
		"require example.test/lib v0.1.0\n\nreplace example.test/lib => ../..\n",
	"adapters/x/x.go":       "package x\n\nimport \"example.test/lib\"\n\nconst Name = lib.Name + \"/x\"\n",
	"adapters/x/big/go.mod": "module example.test/lib/adapters/x/big\n\ngo 1.25.0\n\nrequire example.test/lib v0.1.0\n",
	"adapters/x/big/big.go": "package big\n",

	".ci/releasecheck/testdata/lib/main.go": `package main

import "example.test/lib"

func main() { _ = lib.Name }
`,
	".ci/releasecheck/testdata/x/main.go": `package main

import (
	"fmt"

	"example.test/lib/adapters/x"
)

func main() { fmt.Println("this is", x.Name) }
`,
}

// repository creates a git repository of the library with changes. Go commands of the test may
// not use the network.
func repository(t *testing.T, changes map[string]string) string {
	files := maps.Clone(library)
	maps.Copy(files, changes)

	root := t.TempDir()
	git(t, root, "init", "-q")
	for name, text := range files {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}

	t.Setenv("GOPROXY", "off")
	return root
}

func git(t *testing.T, root string, args ...string) {
	identity := []string{"-C", root, "-c", "user.name=T", "-c", "user.email=t@example.test"}
	out, err := exec.Command("git", append(identity, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestReleaseThatWorksPassesAndLeavesNoFiles(t *testing.T) {
	root := repository(t, nil)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("GOPRIVATE", "example.test") // as a maintainer may have it

	var out bytes.Buffer
	require.NoError(t, check(t.Context(), root, &out), &out)
	assert.Equal(t, `The tags of the next release:
   v0.1.0
   adapters/x/v0.1.0
== lib: go get, go mod tidy, go build, and its program
== adapters/x: go get, go mod tidy, go build, and its program

module       version   result   its user's go.mod requires directly
lib          v0.1.0    ok       example.test/lib v0.1.0
adapters/x   v0.1.0    ok       example.test/lib/adapters/x v0.1.0
                                prints: this is lib/x
`, out.String())

	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// With its replace directives, a module may build in the repository although no user can
// build it.
func TestReleaseThatUsersCannotBuildFails(t *testing.T) {
	root := repository(t, map[string]string{
		"adapters/x/go.mod": library["adapters/x/go.mod"] +
			"\nrequire example.test/lib/adapters/x/big v0.1.0\n\nreplace example.test/lib/adapters/x/big => ./big\n",
		"adapters/x/x.go": "package x\n\nimport _ \"example.test/lib/adapters/x/big\"\n\nconst Name = \"x\"\n",
	})
	var out bytes.Buffer
	assert.Error(t, check(t.Context(), root, &out))
	assert.Regexp(t, `lib +v0.1.0 +ok`, out.String())
	assert.Regexp(t, `adapters/x +v0.1.0 +FAIL`, out.String())
	assert.Contains(t, out.String(), "go get example.test/lib/adapters/x@v0.1.0: exit status 1\n")
}

func TestAllProblemsOfFilesAreReportedAtOnce(t *testing.T) {
	root := repository(t, map[string]string{
		"README.md":             "Call `go get example.test/lib`.\nThere is also example.test/lib/adapters/x.\n",
		"adapters/x/newest.mod": "module example.test/lib/adapters/x\n\nrequire example.test/lib v0.0.9\n",
		"adapters/x/big/go.mod": "module example.test/lib/adapters/x/big\n\n" +
			"require example.test/lib/adapters/x v0.2.0\n",
	})
	err := check(t.Context(), root, new(bytes.Buffer))
	assert.EqualError(t, err, `adapters/x/newest.mod requires example.test/lib@v0.0.9 instead of v0.1.0
adapters/x/big/go.mod requires example.test/lib/adapters/x@v0.2.0 instead of v0.1.0
README.md has no line with `+"`go get example.test/lib/adapters/x`")
}

func TestNextVersionIsThatOfTheFirstSection(t *testing.T) {
	for _, test := range []struct{ changelog, want string }{
		{"## [0.1.0] - Unreleased\n", "v0.1.0"},
		{"# Changelog\n\n## [0.2.0] - Unreleased\n\n## [0.1.0] - 2026-12-01\n", "v0.2.0"},
		{"## [1.0.0-rc.1] - 2026-12-01\n", "v1.0.0-rc.1"},
		{"## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n", ""},
		{"## [0.1] - Unreleased\n", ""},
		{"## [0.1.0]\n", ""},
		{"", ""},
	} {
		version, err := nextVersion(repository(t, map[string]string{"CHANGELOG.md": test.changelog}))
		assert.Equal(t, test.want, version, test.changelog)
		assert.Equal(t, test.want == "", err != nil, test.changelog)
	}
}

func TestTagOfAnotherCommitIsAProblem(t *testing.T) {
	root := repository(t, nil)
	list, err := modules.List(root)
	require.NoError(t, err)
	published := published(list)

	assert.NoError(t, checkTags(root, "v0.1.0", published))

	git(t, root, "commit", "-q", "--allow-empty", "-m", "one")
	git(t, root, "tag", "adapters/x/v0.1.0")
	assert.NoError(t, checkTags(root, "v0.1.0", published), "the tag is here")

	git(t, root, "commit", "-q", "--allow-empty", "-m", "two")
	assert.EqualError(t, checkTags(root, "v0.1.0", published),
		"there is a tag adapters/x/v0.1.0 already, of another commit")
	assert.NoError(t, checkTags(root, "v0.2.0", published))
}

func TestZipHoldsTheModuleAndALicence(t *testing.T) {
	root := repository(t, nil)
	for dir, want := range map[string][]string{
		".": {"LICENSE", ".gitignore", "CHANGELOG.md", "README.md", "go.mod", "lib.go",
			".ci/releasecheck/testdata/lib/main.go", ".ci/releasecheck/testdata/x/main.go"},
		"adapters/x": {"LICENSE", "go.mod", "x.go"},
	} {
		name := filepath.Join(t.TempDir(), "module.zip")
		require.NoError(t, writeZip(name, root, modules.Module{Dir: dir, Path: "example.test/m"}, "v0.1.0"))

		r, err := zip.OpenReader(name)
		require.NoError(t, err)
		defer r.Close()
		var got []string
		for _, f := range r.File {
			got = append(got, f.Name)
		}
		for i := range want {
			want[i] = "example.test/m@v0.1.0/" + want[i]
		}
		assert.ElementsMatch(t, want, got)
	}
}
