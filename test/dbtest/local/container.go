package local

import (
	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

const image = "postgres:17-alpine"

func containerPostgres(missing error) (s *postgresServer, err error) {
	err = testdb.Container(missing, testserver.ContainerOptions{
		Image: image, Port: 5432,
		Env:  []string{"POSTGRES_HOST_AUTH_METHOD=trust"},
		Args: []string{"-c", "max_connections=1000", "-c", "fsync=off"},
	}, func(address string) (err error) {
		s, err = connectPostgres("postgres://postgres@"+address+"/postgres?sslmode=disable", "container "+image)
		return err
	})
	return s, err
}
