// Package modules finds the Go modules of this repository and the files that belong to it.
package modules

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A Module is a directory with a go.mod.
type Module struct {
	Dir  string // relative to the repository, with slashes; "." for the root module
	Path string // its module path
}

// Name returns a short name for the module: its directory or, for the root module, the last
// element of its path.
func (m Module) Name() string {
	if m.Dir == "." {
		return path.Base(m.Path)
	}

	return m.Dir
}

// Root returns the directory of the repository that holds the working directory.
func Root() (string, error) {
	out, err := git(".", "rev-parse", "--show-toplevel")
	return strings.TrimSpace(out), err
}

// Files returns the files that a commit of all changes would contain: those that exist and
// that git tracks or would add. The paths are relative to root and have slashes.
func Files(root string) ([]string, error) {
	out, err := git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}

	var files []string
	for name := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
			files = append(files, name)
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return files, nil
}

// List returns all modules of the repository, the root module first. It is an error if there
// is no root module.
func List(root string) ([]Module, error) {
	files, err := Files(root)
	if err != nil {
		return nil, err
	}

	var list []Module
	for _, name := range files {
		if path.Base(name) != "go.mod" {
			continue
		}

		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		modulePath := modfile.ModulePath(data)
		if modulePath == "" {
			return nil, fmt.Errorf("%s has no module path", name)
		}
		list = append(list, Module{Dir: path.Dir(name), Path: modulePath})
	}

	// "." sorts before all other names.
	slices.SortFunc(list, func(a, b Module) int { return strings.Compare(a.Dir, b.Dir) })
	if len(list) == 0 || list[0].Dir != "." {
		return nil, fmt.Errorf("there is no go.mod in %s", root)
	}
	return list, nil
}

// git runs git in a directory and returns its standard output.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr

	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}
