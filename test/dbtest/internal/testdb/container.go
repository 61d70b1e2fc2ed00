package testdb

import (
	"fmt"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// containerSeconds ends a container whose tests were killed.
const containerSeconds = 60 * 60

// Container runs a container until Stop, and connects to the address of its port. Without
// a container engine it returns the error missing, which says what to install. Containers are the last resort; they are not run in
// this project's own CI, where the servers are installed.
func Container(missing error, o *dockertest.RunOptions, port string, connect func(address string) error) error {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return missing
	}
	if err := pool.Client.Ping(); err != nil {
		return missing
	}
	pool.MaxWait = Timeout
	r, err := pool.RunWithOptions(o, func(c *docker.HostConfig) { c.AutoRemove = true })
	if err != nil {
		return fmt.Errorf("%w; nor does its container start: %w", missing, err)
	}
	StopAtEnd(StopFunc(func() error { return pool.Purge(r) }))
	if err := r.Expire(containerSeconds); err != nil {
		return fmt.Errorf("limit the life of container %s: %w", o.Repository, err)
	}
	return pool.Retry(func() error { return connect(r.GetHostPort(port)) })
}
