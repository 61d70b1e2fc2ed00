package local

import (
	"github.com/ory/dockertest/v3"

	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

const image, imageTag = "postgres", "17-alpine"

func containerPostgres(missing error) (s *postgresServer, err error) {
	err = testdb.Container(missing, &dockertest.RunOptions{
		Repository: image, Tag: imageTag,
		Env: []string{"POSTGRES_HOST_AUTH_METHOD=trust"},
		Cmd: []string{"-c", "max_connections=1000", "-c", "fsync=off"},
	}, "5432/tcp", func(address string) (err error) {
		s, err = connectPostgres("postgres://postgres@"+address+"/postgres?sslmode=disable", "container "+image+":"+imageTag)
		return err
	})
	return s, err
}
