package modules

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repository creates a git repository whose files aren't added to it.
func repository(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	out, err := exec.Command("git", "init", "-q", root).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, text := range files {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return root
}

func TestListReturnsTheModulesThatGitDoesNotIgnore(t *testing.T) {
	root := repository(t, map[string]string{
		"go.mod":                 "module example.test/lib\n",
		".ci/go.mod":             "module example.test/lib/ci\n",
		"adapters/x/go.mod":      "module example.test/lib/adapters/x\n",
		".gitignore":             "ignored\n",
		"ignored/go.mod":         "module example.test/ignored\n",
		"adapters/x/go.mod.orig": "not this one",
	})

	list, err := List(root)
	require.NoError(t, err)
	assert.Equal(t, []Module{
		{".", "example.test/lib"},
		{".ci", "example.test/lib/ci"},
		{"adapters/x", "example.test/lib/adapters/x"},
	}, list)
	assert.Equal(t, "lib", list[0].Name())
	assert.Equal(t, "adapters/x", list[2].Name())
}

func TestListRequiresARootModule(t *testing.T) {
	root := repository(t, map[string]string{"a/go.mod": "module example.test/a\n"})
	_, err := List(root)
	assert.ErrorContains(t, err, "no go.mod in "+root)

	_, err = List(t.TempDir())
	assert.ErrorContains(t, err, "not a git repository")
}

// A file that is deleted in the working tree is still in git's index.
func TestFilesOmitsDeletedFiles(t *testing.T) {
	root := repository(t, map[string]string{"go.mod": "module example.test/lib\n", "a.go": "package lib\n"})
	out, err := exec.Command("git", "-C", root, "add", ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Remove(filepath.Join(root, "a.go")))
	require.NoError(t, os.WriteFile(filepath.Join(root, "b c.go"), nil, 0o644))

	files, err := Files(root)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"go.mod", "b c.go"}, files)
}
