package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/seed8d1e2389/resilience/ci/modules"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

var heading = regexp.MustCompile(`(?m)^## \[([^]]*)\](?: - (Unreleased|\d{4}-\d\d-\d\d))?$`)

// nextVersion returns the version of CHANGELOG.md's first section.
func nextVersion(root string) (string, error) {
	data, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}

	m := heading.FindStringSubmatch(string(data))
	if m == nil || m[2] == "" || semver.Canonical("v"+m[1]) != "v"+m[1] {
		return "", errors.New("CHANGELOG.md must begin with a section like `## [0.1.0] - Unreleased`")
	}
	return "v" + m[1], nil
}

// tag returns the name of the tag that publishes a module.
func tag(m modules.Module, version string) string { return path.Join(m.Dir, version) }

// checkFiles returns an error that names everything that is wrong with the repository's files
// and tags.
func checkFiles(root, version string, list, published []modules.Module) error {
	return errors.Join(
		checkRequirements(root, version, list),
		checkReadme(root, published),
		checkTags(root, version, published),
	)
}

// checkRequirements returns an error for each module of the repository that requires another
// version of one of the others.
func checkRequirements(root, version string, list []modules.Module) error {
	var errs []error
	for _, m := range list {
		for _, base := range []string{"go.mod", "newest.mod"} {
			name := path.Join(m.Dir, base)
			data, err := os.ReadFile(filepath.Join(root, name))
			if errors.Is(err, os.ErrNotExist) && base != "go.mod" {
				continue
			}
			if err != nil {
				return err
			}

			file, err := modfile.Parse(name, data, nil)
			if err != nil {
				return err
			}
			for _, r := range file.Require {
				ours := slices.ContainsFunc(list, func(m modules.Module) bool { return m.Path == r.Mod.Path })
				if ours && r.Mod.Version != version {
					errs = append(errs, fmt.Errorf("%s requires %s instead of %s", name, r.Mod, version))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// checkReadme returns an error for each published module without a go get line in README.md.
func checkReadme(root string, published []modules.Module) error {
	data, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return err
	}

	var got []string
	for line := range strings.Lines(string(data)) {
		if _, paths, found := strings.Cut(line, "go get "); found {
			for field := range strings.FieldsSeq(paths) {
				modulePath, _, _ := strings.Cut(strings.Trim(field, "`.,"), "@")
				got = append(got, modulePath)
			}
		}
	}

	var errs []error
	for _, m := range published {
		if !slices.Contains(got, m.Path) {
			errs = append(errs, fmt.Errorf("README.md has no line with `go get %s`", m.Path))
		}
	}
	return errors.Join(errs...)
}

// checkTags returns an error for each tag of the release that exists already, unless it is a
// tag of the current commit.
func checkTags(root, version string, published []modules.Module) error {
	list := func(args ...string) ([]string, error) {
		cmd := exec.Command("git", append([]string{"tag", "--list"}, args...)...)
		cmd.Dir = root
		out, err := cmd.Output()
		return strings.Fields(string(out)), err
	}

	all, err := list()
	if err != nil || len(all) == 0 {
		return err
	}
	here, err := list("--points-at", "HEAD")
	if err != nil {
		return err
	}

	var errs []error
	for _, m := range published {
		if t := tag(m, version); slices.Contains(all, t) && !slices.Contains(here, t) {
			errs = append(errs, fmt.Errorf("there is a tag %s already, of another commit", t))
		}
	}
	return errors.Join(errs...)
}
