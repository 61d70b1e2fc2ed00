package projects

import (
	"errors"

	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// NotRegistered turns an error of finding or creating a project into the refusal that the pusher reads.
func NotRegistered(err error) error {
	var why refusal.Lines
	switch {
	case errors.As(err, &why):
		return err
	case errors.Is(err, ErrOtherHistory):
		return refusal.Lines{wire.OneLine(err.Error())}
	}
	return refusal.DatabaseFailed(err)
}
