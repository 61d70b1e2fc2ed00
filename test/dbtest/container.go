package dbtest

import (
	"github.com/ory/dockertest/v3"

	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

const emulatorImage, emulatorTag = "gcr.io/cloud-spanner-emulator/emulator", "1.5.43"

func containerSpanner(missing error) (s *spannerServer, err error) {
	err = testdb.Container(missing, &dockertest.RunOptions{Repository: emulatorImage, Tag: emulatorTag}, "9010/tcp", func(address string) (err error) {
		s, err = connectSpanner(address, "container "+emulatorImage+":"+emulatorTag)
		return err
	})
	return s, err
}
