// Package chromiumtest runs tests in a real browser.
package chromiumtest

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// This npm package holds a Chromium that needs little more of a system than a libc. It comes from
// npm because that is available wherever this repository is tested. It is a download of 70 MB and
// takes 210 MB in the user's cache directory.
const (
	npmPackage = "@sparticuz/chromium"
	npmVersion = "147.0.0"
	npmSHA512  = "4ZKeAQQa8up2mt675qSitztLdbQrlf8BKdC5naeap+5Mv1OV1OlJdPoU+EJC/p5sQUJUQmN4r+q5+EhaaOUHpQ=="
)

// Path returns the path of a Chromium: $CHROME_PATH, one on the PATH, or one that it installs.
// It skips the test if none of these is available, and with -short.
func Path(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("with -short, Chromium is neither started nor installed")
	}
	if path := os.Getenv("CHROME_PATH"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome-headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}

	path, err := installed(t)
	if errors.Is(err, errChecksum) {
		t.Fatal(err) // the package isn't the one that was chosen, which must not go unnoticed
	}
	if err != nil {
		t.Skipf("there is no Chromium (set CHROME_PATH to the path of one), and it can't be installed: %v", err)
	}
	return path
}

// installed returns the path of the Chromium in the cache directory, and installs it if need be.
func installed(t *testing.T) (string, error) {
	ctx := t.Context()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", errors.New("the npm package is for Linux on amd64")
	}
	for _, program := range []string{"npm", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", err
		}
	}

	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "resilience-examples")
	dir := filepath.Join(cache, "chromium-"+npmVersion)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(cache, 0o755); err != nil {
			return "", err
		}
		tmp, err := os.MkdirTemp(cache, "installing-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(tmp)

		t.Logf("installing %s@%s into %s", npmPackage, npmVersion, dir)
		if err := install(ctx, tmp); err != nil {
			return "", err
		}
		// Renaming installs it all at once. If dir exists by now, another test was faster.
		if err := os.Rename(filepath.Join(tmp, "chromium"), dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}

	path := filepath.Join(dir, "chromium.sh")
	if _, err := output(exec.CommandContext(ctx, path, "--version")); err != nil {
		return "", err
	}
	return path, nil
}

// install puts Chromium into dir/chromium.
func install(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // the network may hang
	defer cancel()
	if err := download(ctx, dir); err != nil {
		return err
	}

	to := filepath.Join(dir, "chromium")
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	bin := filepath.Join(dir, "package", "bin")
	if err := unbrotli(ctx, filepath.Join(bin, "chromium.br"), filepath.Join(to, "chromium")); err != nil {
		return err
	}

	libs := filepath.Join(dir, "libs.tar")
	if err := unbrotli(ctx, filepath.Join(bin, "al2023.tar.br"), libs); err != nil {
		return err
	}
	f, err := os.Open(libs)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := untar(f, to); err != nil {
		return err
	}

	script := "#!/bin/sh\nhere=$(dirname \"$0\")\nLD_LIBRARY_PATH=$here/lib exec \"$here/chromium\" \"$@\"\n"
	return os.WriteFile(filepath.Join(to, "chromium.sh"), []byte(script), 0o755)
}

// download puts the files of the npm package into dir/package.
func download(ctx context.Context, dir string) error {
	npm := exec.CommandContext(ctx, "npm", "pack", npmPackage+"@"+npmVersion,
		"--pack-destination", dir, "--fetch-retries=1")
	npm.Dir = dir
	if _, err := output(npm); err != nil {
		return err
	}

	archives, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("npm pack has made %q (%v)", archives, err)
	}
	if err := verify(archives[0]); err != nil {
		return err
	}

	archive, err := os.Open(archives[0])
	if err != nil {
		return err
	}
	defer archive.Close()
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	return untar(unzipped, dir)
}

var errChecksum = errors.New("wrong checksum")

// verify returns errChecksum, wrapped, if the archive has another checksum than npmSHA512.
func verify(archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()

	h := sha512.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := base64.StdEncoding.EncodeToString(h.Sum(nil)); got != npmSHA512 {
		return fmt.Errorf("%w: that of %s is %s instead of %s", errChecksum, filepath.Base(archive), got, npmSHA512)
	}
	return nil
}

// untar writes the regular files of an archive into dir.
func untar(r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()

	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}

		if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(header.Name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
		if err != nil {
			return err
		}
		if _, err = io.Copy(f, archive); err == nil {
			err = f.Close()
		}
		if err != nil {
			return err
		}
	}
}

// unbrotli decompresses a file. It uses node because Go's standard library lacks Brotli.
func unbrotli(ctx context.Context, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer out.Close()

	const script = `require("stream").pipeline(
		process.stdin, require("zlib").createBrotliDecompress(), process.stdout, err => { if (err) throw err })`
	cmd := exec.CommandContext(ctx, "node", "-e", script)
	cmd.Stdin, cmd.Stdout = in, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("unpacking %s: %w", filepath.Base(from), err)
	}
	return out.Close()
}

// output runs a command and returns what it prints. The error includes that, too.
func output(cmd *exec.Cmd) ([]byte, error) {
	text, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, text)
	}
	return text, err
}
