package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed8d1e2389/resilience/ci/modules"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// publish adds a version of a module to the proxy in a directory, as the go command would find
// it at a tag; see https://go.dev/ref/mod#goproxy-protocol.
func publish(proxy, root string, m modules.Module, version string) error {
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	goMod, err := os.ReadFile(filepath.Join(root, m.Dir, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}

	for name, data := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": info,
		version + ".mod":  goMod,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return writeZip(filepath.Join(dir, version+".zip"), root, m, version)
}

// writeZip writes a module's zip file. Like the go command, it adds the repository's licence
// to a module that has none.
func writeZip(name, root string, m modules.Module, version string) error {
	all, err := modules.Files(root)
	if err != nil {
		return err
	}

	var files []zip.File
	for _, f := range all {
		if m.Dir == "." {
			files = append(files, file{f, filepath.Join(root, f)})
		} else if rel, found := strings.CutPrefix(f, m.Dir+"/"); found {
			files = append(files, file{rel, filepath.Join(root, f)})
		}
	}

	hasLicence := slices.ContainsFunc(files, func(f zip.File) bool { return f.Path() == "LICENSE" })
	if !hasLicence && slices.Contains(all, "LICENSE") {
		files = append(files, file{"LICENSE", filepath.Join(root, "LICENSE")})
	}

	w, err := os.Create(name)
	if err != nil {
		return err
	}
	// Create omits the files of nested modules.
	err = zip.Create(w, module.Version{Path: m.Path, Version: version}, files)
	return errors.Join(err, w.Close())
}

// A file is a zip.File in the working tree.
type file struct {
	path string // in the module
	name string // in the file system
}

func (f file) Path() string                 { return f.path }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.name) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.name) }
