package testdb

import (
	"context"
	"errors"
	"fmt"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
)

// Container runs a container until StopAll, and connects to its address. Without a container engine it returns the error
// missing, which says what to install. Containers are the last resort; they are not run in this project's own CI, where
// the servers are installed.
func Container(missing error, o testserver.ContainerOptions, connect func(address string) error) error {
	c, err := testserver.StartContainer(context.Background(), o, connect)
	switch {
	case errors.As(err, new(testserver.NotInstalledError)):
		return missing
	case err != nil:
		return fmt.Errorf("%w; nor does its container start: %w", missing, err)
	}
	StopAtEnd(c)
	return nil
}
