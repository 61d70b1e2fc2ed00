package dbtest

import (
	"fmt"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// Containers are the last resort; they are not run in this project's own CI,
// where the servers are installed.
const (
	postgresImage, postgresTag = "postgres", "17-alpine"
	emulatorImage, emulatorTag = "gcr.io/cloud-spanner-emulator/emulator", "1.5.43"

	// containerSeconds ends a container whose tests were killed.
	containerSeconds = 60 * 60
)

func containerPostgres(missing error) (*postgresServer, error) {
	pool, address, err := container(missing, &dockertest.RunOptions{
		Repository: postgresImage, Tag: postgresTag,
		Env: []string{"POSTGRES_HOST_AUTH_METHOD=trust"},
		Cmd: []string{"-c", "max_connections=1000", "-c", "fsync=off"},
	}, "5432/tcp")
	if err != nil {
		return nil, err
	}
	admin := "postgres://postgres@" + address + "/postgres?sslmode=disable"
	var s *postgresServer
	err = pool.Retry(func() (err error) {
		s, err = connectPostgres(admin, "container "+postgresImage+":"+postgresTag)
		return err
	})
	return s, err
}

func containerSpanner(missing error) (*spannerServer, error) {
	pool, address, err := container(missing, &dockertest.RunOptions{
		Repository: emulatorImage, Tag: emulatorTag,
	}, "9010/tcp")
	if err != nil {
		return nil, err
	}
	var s *spannerServer
	err = pool.Retry(func() (err error) {
		s, err = connectSpanner(address, "container "+emulatorImage+":"+emulatorTag)
		return err
	})
	return s, err
}

// container runs a container until Stop and returns the address of its port. Without
// a container engine it returns the error missing, which says what to install.
func container(missing error, o *dockertest.RunOptions, port string) (*dockertest.Pool, string, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, "", missing
	}
	if err := pool.Client.Ping(); err != nil {
		return nil, "", missing
	}
	pool.MaxWait = timeout
	r, err := pool.RunWithOptions(o, func(c *docker.HostConfig) { c.AutoRemove = true })
	if err != nil {
		return nil, "", fmt.Errorf("%w; nor does its container start: %w", missing, err)
	}
	started.add(stopFunc(func() error { return pool.Purge(r) }))
	if err := r.Expire(containerSeconds); err != nil {
		return nil, "", fmt.Errorf("limit the life of container %s: %w", o.Repository, err)
	}
	return pool, r.GetHostPort(port), nil
}
