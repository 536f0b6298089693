//go:build !linux

package main

import (
	"context"
	"errors"
	"os/exec"
)

func setGroup(*exec.Cmd) {}

func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func pause(context.Context, *exec.Cmd) error { return errors.ErrUnsupported }

func resume(*exec.Cmd) error { return errors.ErrUnsupported }
