// Releasecheck tries the next release before it is tagged.
//
//	go run -C .ci ./releasecheck
//
// It publishes the working tree on a module proxy in a directory, as if it had been tagged. For
// each published module, it then builds and runs a program that requires nothing else. The
// programs are in testdata. Releasecheck also checks the go.mod files, README.md and
// CHANGELOG.md for what a release needs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"syscall"

	"github.com/seed8d1e2389/resilience/ci/modules"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)

	root, err := modules.Root()
	if err == nil {
		err = check(ctx, root, os.Stdout)
	}
	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "releasecheck:", err)
		os.Exit(1)
	}
}

// check tries the next release of the repository at root.
func check(ctx context.Context, root string, out io.Writer) error {
	list, err := modules.List(root)
	if err != nil {
		return err
	}
	version, err := nextVersion(root)
	if err != nil {
		return err
	}

	published := published(list)
	fmt.Fprintln(out, "The tags of the next release:")
	for _, m := range published {
		fmt.Fprintln(out, "  ", tag(m, version))
	}
	if err := checkFiles(root, version, list, published); err != nil {
		return err
	}

	tmp, err := os.MkdirTemp("", "releasecheck-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	proxy := filepath.Join(tmp, "proxy")
	for _, m := range published {
		if err := publish(proxy, root, m, version); err != nil {
			return fmt.Errorf("%s: %w", m.Name(), err)
		}
	}

	users, err := newUsers(tmp, proxy, list[0].Path)
	if err != nil {
		return err
	}
	return tryAll(ctx, users, root, version, published, out)
}

// tryAll tries every published module, also after one has failed, and prints the table.
func tryAll(
	ctx context.Context, users *users, root, version string, published []modules.Module, out io.Writer,
) error {
	failed := false
	var rows []row
	for _, m := range published {
		fmt.Fprintf(out, "== %s: go get, go mod tidy, go build, and its program\n", m.Name())
		r, err := users.try(ctx, m, version, program(root, m))
		if err != nil {
			fmt.Fprintln(out, err)
			failed = true
		}
		rows = append(rows, r)
	}

	printTable(out, rows)
	if failed {
		return errors.New("a module can't be used as published")
	}
	return nil
}

// published returns the root module and the modules directly in adapters.
func published(list []modules.Module) []modules.Module {
	var published []modules.Module
	for _, m := range list {
		if m.Dir == "." || path.Dir(m.Dir) == "adapters" {
			published = append(published, m)
		}
	}
	return published
}
