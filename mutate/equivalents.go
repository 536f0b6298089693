package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
)

// equivalents holds the reasons why mutants can't be told from the original, by the mutants' keys.
type equivalents map[string]string

// readEquivalents reads a list of equivalents, by package. A line in brackets names the package; then follow keys of
// mutants, as a run prints them after the line, and after those the reason, which is indented. "#*" instead of a number
// is about all of the same changes in a function.
func readEquivalents(name string) (map[string]equivalents, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	all := map[string]equivalents{}
	var current equivalents
	var keys []string
	scanner := bufio.NewScanner(f)
	for n := 1; scanner.Scan(); n++ {
		line := scanner.Text()
		wrong := func(why string) error { return fmt.Errorf("%s:%d: %s", name, n, why) }
		switch text := strings.TrimSpace(line); {
		case text == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			current = equivalents{}
			all[strings.Trim(text, "[]")] = current
		case current == nil:
			return nil, wrong("there is no package before it")
		case !strings.HasPrefix(line, "\t"):
			if _, ok := current[text]; ok {
				return nil, wrong("it is listed twice")
			}
			current[text] = ""
			keys = append(keys, text)
		case len(keys) == 0:
			return nil, wrong("there is no mutant before the reason")
		default:
			for _, key := range keys {
				current[key] = text
			}
			keys = nil
		}
	}
	if len(keys) > 0 {
		return nil, fmt.Errorf("%s: %q has no reason", name, keys[0])
	}
	return all, scanner.Err()
}

// mark gives mutants the reasons why they are equivalent. Its error names those that are listed, but don't exist any
// more.
func (e equivalents) mark(mutants []*mutant) error {
	found := map[string]bool{}
	for _, m := range mutants {
		key := m.key()
		if _, ok := e[key]; !ok {
			key = m.keyOfAll()
		}
		m.reason = e[key]
		found[key] = true
	}

	var failed []error
	for key := range e {
		if !found[key] {
			failed = append(failed, fmt.Errorf("equivalents.txt lists what isn't a mutant any more: %s", key))
		}
	}
	return errors.Join(failed...)
}
