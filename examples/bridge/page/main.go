// Page stands in for a browser with one page in demonstrations: it starts at once and can be
// killed without harm. It understands as much of the Chrome DevTools Protocol, and as few
// expressions, as the bridge sends.
//
//	page -addr 127.0.0.1:9222 -site http://127.0.0.1:8080
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:9222", "the address at which the DevTools listen")
	url := flag.String("site", "", "the address of the page to show")
	flag.Parse()
	if err := run(*addr, *url); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func run(addr, url string) error {
	site, err := load(url)
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newDevtools(site), ReadHeaderTimeout: 5 * time.Second}
	return server.Serve(listener)
}
