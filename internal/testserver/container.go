package testserver

import (
	"context"
	"crypto/rand"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// engineTimeout limits how long a container engine may take to say that it runs.
const engineTimeout = 20 * time.Second

// contain runs a container with the engine $1 under the name $2. A container that is being made when
// the signal comes is removed as soon as it is there.
const contain = `
engine=$1 name=$2; shift 2
trap 'trap "" TERM; while kill -0 "$run"; do "$engine" rm --force "$name"; sleep 0.1; done; exit' TERM
"$engine" run --rm --name "$name" "$@" & run=$!
wait "$run"`

// A Container is a server in a container.
type Container struct {
	*Process
	Address string // host and port
}

// ContainerOptions are what containers differ in.
type ContainerOptions struct {
	Image string   // with its tag
	Port  int      // that the server listens on, in the container
	Env   []string // such as NAME=VALUE
	Args  []string // of the image's program
}

// StartContainer starts a container with docker or podman, and waits until ready returns nil for its
// address. Without a running engine the error is a [NotInstalledError].
func StartContainer(ctx context.Context, o ContainerOptions, ready func(address string) error) (*Container, error) {
	engine, err := containerEngine(ctx)
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := newDirectory("")
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	argv := []string{"/bin/sh", "-c", contain, "contain", engine, "refdb-test-" + strings.ToLower(rand.Text()),
		"--publish", address + ":" + strconv.Itoa(o.Port)}
	for _, variable := range o.Env {
		argv = append(argv, "--env", variable)
	}
	argv = append(append(argv, o.Image), o.Args...)
	p, err := command{name: "container " + o.Image, argv: argv, dir: dir, signal: "TERM"}.start()
	if err != nil {
		return nil, err
	}
	if err := p.until(ctx, func(context.Context) error { return ready(address) }); err != nil {
		_ = p.Stop()
		return nil, err
	}
	return &Container{p, address}, nil
}

// containerEngine returns the name of an engine that runs: the program docker may be there without
// its daemon.
func containerEngine(ctx context.Context) (string, error) {
	for _, engine := range []string{"docker", "podman"} {
		ctx, cancel := context.WithTimeout(ctx, engineTimeout)
		err := exec.CommandContext(ctx, engine, "info").Run()
		cancel()
		if err == nil {
			return engine, nil
		}
	}
	return "", NotInstalledError{"container engine"}
}
