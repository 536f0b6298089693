//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

func own(*exec.Cmd) {}

func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func pause(*exec.Cmd) error { return errors.ErrUnsupported }

func resume(*exec.Cmd) error { return errors.ErrUnsupported }
