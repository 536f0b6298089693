package chromiumtest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// The npm package @sparticuz/chromium holds a Chromium that needs little more of a system than a libc. The lock file
// has the checksums. It is a download of 70 MB and takes 280 MB in the user's cache directory.
//
//go:embed package.json package-lock.json
var npmFiles embed.FS

const version = "147.0.0" // as in package.json

// unpack unpacks the browser into the directory for temporary files.
const unpack = `import("@sparticuz/chromium").then(({default: chromium}) => chromium.executablePath())`

// installed returns the path of the Chromium in the cache directory. It installs it first, if it isn't there.
func installed(ctx context.Context) (string, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", errors.New("the npm package is for Linux on amd64")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "resilience-examples", "sparticuz-chromium-"+version)
	path := filepath.Join(dir, "start.sh")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}

	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "installing-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := install(ctx, tmp); err != nil {
		return "", err
	}

	// Renaming installs it all at once. If the directory exists by now, another test was faster.
	if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return path, nil
}

// install puts Chromium into an empty directory, with a script that starts it.
func install(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // the network may hang
	defer cancel()
	if err := os.CopyFS(dir, npmFiles); err != nil {
		return err
	}
	for _, command := range [][]string{
		{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"},
		{"node", "-e", unpack},
	} {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Dir = dir
		// On AWS Lambda, the package unpacks libraries that many systems lack.
		cmd.Env = append(os.Environ(), "TMPDIR="+dir, "AWS_EXECUTION_ENV=AWS_Lambda_nodejs22.x")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(command[:2], " "), err, out)
		}
	}

	const script = `#!/bin/sh
here=$(dirname "$0")
LD_LIBRARY_PATH=$here/al2023/lib exec "$here/chromium" "$@"
`
	return os.WriteFile(filepath.Join(dir, "start.sh"), []byte(script), 0o755)
}
