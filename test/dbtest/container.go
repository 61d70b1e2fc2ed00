package dbtest

import (
	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

const emulatorImage = "gcr.io/cloud-spanner-emulator/emulator:1.5.43"

func containerSpanner(missing error) (s *spannerServer, err error) {
	err = testdb.Container(missing, testserver.ContainerOptions{Image: emulatorImage, Port: 9010}, func(address string) (err error) {
		s, err = connectSpanner(address, "container "+emulatorImage)
		return err
	})
	return s, err
}
