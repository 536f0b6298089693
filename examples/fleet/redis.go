package main

import (
	"errors"
	"net"
	"os/exec"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// startRedis starts a Redis on the loopback interface.
func startRedis() (addr string, stop func(), err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		server, err := miniredis.Run()
		if err != nil {
			return "", nil, err
		}
		return server.Addr(), server.Close, nil
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = listener.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	listener.Close()

	cmd := exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--save", "")
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for range 1000 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return addr, stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return "", nil, errors.New("redis-server doesn't accept connections")
}
