// Package workspace holds tools that work on a real directory and fetch from real
// servers, for the example servers. It knows nothing of MCP.
package workspace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed8d1e2389/resilience"
)

const (
	maxMatches  = 50
	maxLine     = 64 << 10 // bytes of a line that are looked at
	maxRead     = 256 << 10
	largestKept = 5
)

// A Dir is a directory whose files can be searched and read. Nothing outside of it
// can be reached: not by "..", not by an absolute path, not through a symbolic link.
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

// SearchInput is what Search takes.
type SearchInput struct {
	Text string `json:"text" jsonschema:"the text to look for, in upper or lower case"`
}

// SearchOutput is what Search finds.
type SearchOutput struct {
	Matches []Match `json:"matches"`
	More    bool    `json:"more" jsonschema:"whether there are more matches than these"`
}

// Match is one line that holds the text.
type Match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

// Search finds the lines of the directory's text files that hold a text.
func (d *Dir) Search(ctx context.Context, in SearchInput) (SearchOutput, error) {
	out := SearchOutput{Matches: []Match{}}
	if in.Text == "" {
		return out, invalid("The text to search for is empty")
	}
	want := strings.ToLower(in.Text)
	err := d.walk(ctx, ".", func(name string, info fs.FileInfo) error {
		if len(out.Matches) > maxMatches {
			return fs.SkipAll
		}
		return d.searchFile(name, want, &out)
	})
	if len(out.Matches) > maxMatches {
		out.Matches, out.More = out.Matches[:maxMatches], true
	}
	return out, err
}

func (d *Dir) searchFile(name, want string, out *SearchOutput) error {
	f, err := d.root.Open(name)
	if err != nil {
		return nil // gone since, or not ours to read
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan() && len(out.Matches) <= maxMatches; n++ {
		text := lines.Text()
		if !utf8.ValidString(text) {
			return nil // not a text file
		}
		if strings.Contains(strings.ToLower(text), want) {
			out.Matches = append(out.Matches, Match{name, n, strings.TrimSpace(text)})
		}
	}
	return nil // a line that is too long ends the file, not the search
}

// ReadInput is what Read takes.
type ReadInput struct {
	Path string `json:"path" jsonschema:"the file's path inside the directory, with slashes"`
}

// ReadOutput is a file's text.
type ReadOutput struct {
	Path string `json:"path"`
	Text string `json:"text"`
	More bool   `json:"more" jsonschema:"whether the file is longer than this text"`
}

// Read reads a text file.
func (d *Dir) Read(_ context.Context, in ReadInput) (ReadOutput, error) {
	name, err := inside(in.Path)
	if err != nil {
		return ReadOutput{}, err
	}
	f, err := d.root.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ReadOutput{}, invalid("There is no file %q in the directory", in.Path)
	case err != nil:
		// os.Root also says so of a link that leads outside.
		return ReadOutput{}, invalid("%q can't be opened inside the directory", in.Path)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return ReadOutput{}, err
	} else if !info.Mode().IsRegular() {
		return ReadOutput{}, invalid("%q is not a file", in.Path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxRead+1))
	if err != nil {
		return ReadOutput{}, err
	}
	out := ReadOutput{Path: name, More: len(b) > maxRead}
	if out.More {
		b = b[:maxRead]
		for range utf8.UTFMax - 1 { // a character that was cut
			if !utf8.Valid(b) {
				b = b[:len(b)-1]
			}
		}
	}
	if !utf8.Valid(b) {
		return ReadOutput{}, invalid("%q is not a text file", in.Path)
	}
	out.Text = string(b)
	return out, nil
}

// OverviewInput is what Overview takes.
type OverviewInput struct {
	Path string `json:"path,omitempty" jsonschema:"a folder inside the directory; empty for all of it"`
}

// OverviewOutput is what a directory holds.
type OverviewOutput struct {
	Files   int            `json:"files"`
	Bytes   int64          `json:"bytes"`
	Kinds   map[string]int `json:"kinds" jsonschema:"how many files there are of each ending"`
	Largest []File         `json:"largest"`
}

// File is a file's name and size.
type File struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// Overview counts and measures the files of the directory or a folder in it.
func (d *Dir) Overview(ctx context.Context, in OverviewInput) (OverviewOutput, error) {
	out := OverviewOutput{Kinds: map[string]int{}, Largest: []File{}}
	name, err := inside(in.Path)
	if err != nil {
		return out, err
	}
	if info, err := d.root.Stat(name); err != nil || !info.IsDir() {
		return out, invalid("There is no folder %q in the directory", in.Path)
	}
	err = d.walk(ctx, name, func(name string, info fs.FileInfo) error {
		out.Files++
		out.Bytes += info.Size()
		out.Kinds[path.Ext(name)]++
		out.Largest = append(out.Largest, File{name, info.Size()})
		slices.SortFunc(out.Largest, func(a, b File) int { return int(b.Bytes - a.Bytes) })
		out.Largest = out.Largest[:min(len(out.Largest), largestKept)]
		return nil
	})
	return out, err
}

// walk calls visit for each regular file that isn't hidden, as long as ctx goes on.
func (d *Dir) walk(ctx context.Context, from string, visit func(string, fs.FileInfo) error) error {
	return fs.WalkDir(d.root.FS(), from, func(name string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return nil // gone since
		}
		if name != from && strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		return visit(name, info)
	})
}

// inside turns what an agent calls a path into one that stays in the directory.
func inside(name string) (string, error) {
	clean := path.Clean(strings.ReplaceAll(name, `\`, "/"))
	if !fs.ValidPath(clean) {
		return "", invalid("The path %q leads outside the directory", name)
	}
	return clean, nil
}

// invalid is the agent's own mistake, in words that it reads.
func invalid(format string, args ...any) error {
	return &resilience.Error{
		Code:       resilience.CodeValidation,
		Message:    fmt.Sprintf(format, args...),
		Suggestion: "Correct the arguments, then call again. The overview tool tells what there is.",
	}
}
