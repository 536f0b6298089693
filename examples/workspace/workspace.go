// Package workspace holds the tools of the example servers. They work on a real directory and fetch from real servers,
// and don't depend on MCP.
package workspace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/seed8d1e2389/resilience"
)

const (
	maxMatches = 50
	maxRead    = 256 << 10 // bytes of a file
)

// A Dir is a directory whose files can be searched and read. Nothing outside of it can be reached, neither by ".." or
// an absolute path nor through a symbolic link. Its methods are safe for concurrent use.
type Dir struct{ root *os.Root }

// Open opens the directory at path.
func Open(path string) (*Dir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Dir{root}, nil
}

// Close closes the directory.
func (d *Dir) Close() error { return d.root.Close() }

// SearchInput is the input of Search.
type SearchInput struct {
	Text string `json:"text" jsonschema:"the text to look for, in upper or lower case"`
}

// SearchOutput holds the first matches.
type SearchOutput struct {
	Matches []Match `json:"matches"`
	More    bool    `json:"more" jsonschema:"whether there are more matches than these"`
}

// Match is a line that contains the text.
type Match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

// Search finds the lines of text files that contain a text, in upper or lower case. It skips hidden files, and the rest
// of long ones.
func (d *Dir) Search(ctx context.Context, in SearchInput) (SearchOutput, error) {
	out := SearchOutput{Matches: []Match{}}
	if in.Text == "" {
		return out, invalid("The text to search for is empty")
	}

	want := strings.ToLower(in.Text)
	err := d.walk(ctx, func(name string) error {
		text, _, err := d.read(name)
		if err != nil {
			return nil // it was removed meanwhile, may not be read, or is no text
		}
		n := 0
		for line := range strings.Lines(text) {
			n++
			if !strings.Contains(strings.ToLower(line), want) {
				continue
			}
			if len(out.Matches) == maxMatches {
				out.More = true
				return fs.SkipAll
			}
			out.Matches = append(out.Matches, Match{name, n, strings.TrimSpace(line)})
		}
		return nil
	})
	return out, err
}

// ReadInput is the input of Read.
type ReadInput struct {
	Path string `json:"path" jsonschema:"the file's path inside the directory, with slashes"`
}

// ReadOutput holds the beginning of a file, or all of it.
type ReadOutput struct {
	Path string `json:"path"`
	Text string `json:"text"`
	More bool   `json:"more" jsonschema:"whether the file is longer than this text"`
}

// Read reads a text file. What isn't a text file in the directory is an *Error with CodeValidation, since the agent
// chose the path.
func (d *Dir) Read(_ context.Context, in ReadInput) (ReadOutput, error) {
	name, err := inside(in.Path)
	if err != nil {
		return ReadOutput{}, err
	}
	text, more, err := d.read(name)
	if err != nil {
		return ReadOutput{}, invalid("%q is not a text file in the directory", in.Path)
	}
	return ReadOutput{name, text, more}, nil
}

// read returns the beginning of a text file, and whether there is more.
func (d *Dir) read(name string) (text string, more bool, err error) {
	f, err := d.root.Open(name)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", false, fs.ErrInvalid
	}
	b, err := io.ReadAll(io.LimitReader(f, maxRead+1))
	if err != nil {
		return "", false, err
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return "", false, fs.ErrInvalid // no text has such a byte
	}

	more = len(b) > maxRead
	return strings.ToValidUTF8(string(b[:min(len(b), maxRead)]), ""), more, nil
}

// walk calls visit for each regular file that isn't hidden. It returns the error of ctx once ctx has ended.
func (d *Dir) walk(ctx context.Context, visit func(name string) error) error {
	return fs.WalkDir(d.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return nil // it was removed meanwhile
		case name != "." && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular():
			return nil
		}
		return visit(name)
	})
}

// inside returns an agent's path in a form that os.Root takes, or an error if it leads outside the directory.
func inside(name string) (string, error) {
	clean := path.Clean(strings.ReplaceAll(name, `\`, "/"))
	if !fs.ValidPath(clean) {
		return "", invalid("The path %q leads outside the directory", name)
	}
	return clean, nil
}

// invalid returns the error of a mistake that the agent made, with a message that it reads.
func invalid(format string, args ...any) error {
	return &resilience.Error{
		Code:       resilience.CodeValidation,
		Message:    fmt.Sprintf(format, args...),
		Suggestion: "Correct the arguments, then call again. The search tool finds files by their text.",
	}
}
