// Command ratios reads the output of this module's benchmarks, from files or from the
// standard input, and prints two tables in Markdown: how the guard compares with its
// peers and the floor in every case, and the bar that it is held to. All figures are
// medians. It fails if a case is missing, and not if the bar is missed.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	runs := flag.Int("runs", 6, "how often each case must have been run")
	all := flag.Bool("all", false, "print a row for each peer, not only for the guard")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: ratios [-runs n] [-all] [file...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(os.Stdout, os.Stdin, flag.Args(), *runs, *all); err != nil {
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, in io.Reader, files []string, runs int, all bool) error {
	readers := []io.Reader{in}
	if len(files) > 0 {
		readers = nil
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		readers = append(readers, f)
	}
	s, err := parse(io.MultiReader(readers...))
	if err != nil {
		return err
	}
	if err := s.check(runs); err != nil {
		return err
	}
	s.table(out, all)
	s.bar(out)
	return nil
}
