package moving

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/refusal"
)

// States asks the database for values and locks.
func (co *Coordinator) States(ctx context.Context, c *config.Config, project string, refs []string) ([]refdb.State, error) {
	var states []refdb.State
	err := co.State.RetryLocked(ctx, c, func(ctx context.Context) (err error) {
		states, err = co.DB.States(ctx, project, refs)
		return err
	})
	if err != nil {
		return nil, refusal.DatabaseFailed(err)
	}
	return states, nil
}
