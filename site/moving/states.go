package moving

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/refusal"
)

// States asks the database for values and locks.
func (co *Coordinator) States(ctx context.Context, c *config.Config, project string, refs []string) ([]driver.State, error) {
	var states []driver.State
	err := co.State.Retry(ctx, c, func(ctx context.Context) (err error) {
		states, err = co.DB.Intents().States(ctx, project, refs)
		return err
	})
	if err != nil {
		return nil, refusal.DatabaseFailed(err)
	}
	return states, nil
}
