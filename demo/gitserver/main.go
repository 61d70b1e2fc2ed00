// Gitserver serves the Git repositories below a directory over smart HTTP, for
// the demo. It runs git http-backend for every request, without authentication.
//
//	gitserver ADDRESS ROOT
package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gitserver ADDRESS ROOT")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "gitserver:", err)
		os.Exit(1)
	}
}

// serve prints the address on which it listens, and serves requests.
func serve(address, root string) error {
	git, err := exec.LookPath("git")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return http.Serve(listener, &cgi.Handler{
		Path:       git,
		Args:       []string{"http-backend"},
		Env:        []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=demo"},
		InheritEnv: []string{"PATH", "HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "REFDB_HOOK_TIMEOUT"},
	})
}
