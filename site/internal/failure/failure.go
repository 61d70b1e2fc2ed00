// Package failure logs what goes wrong and is tried again.
package failure

import (
	"context"
	"log/slog"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Log logs the error of something that is tried again, unless there is none, or ctx has ended.
func Log(ctx context.Context, log *slog.Logger, what string, err error) {
	if err != nil && ctx.Err() == nil {
		log.DebugContext(ctx, what, "class", refdb.ClassOf(err).String())
	}
}
