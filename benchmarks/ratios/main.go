// Command ratios reads the output of this module's benchmarks, from files or from its standard
// input, and prints a table in Markdown: how the guard compares with its peers and with the
// floor in every case. All figures are medians. The command fails if a case is missing.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	runs := flag.Int("runs", 6, "how many times each case must have been run")
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

// run reads the files, or in if there are none, and prints the table.
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
	s.printTable(out, all)
	return nil
}
