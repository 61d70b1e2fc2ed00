package server

import (
	"context"
	"log/slog"
	"time"
)

// recheck is how often files are read again.
const recheck = 10 * time.Second

// keep reads files again until ctx ends. The function reload returns whether they have changed. While
// they can't be used, for example because only one of two has been replaced so far, what was read earlier
// stays in use.
func keep(ctx context.Context, log *slog.Logger, what string, reload func() (changed bool, err error)) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(recheck):
		}
		changed, err := reload()
		switch {
		case err != nil && (changed || !failing):
			log.WarnContext(ctx, what+" can't be read again: what was read earlier stays in use", "error", err)
		case err == nil && changed:
			log.InfoContext(ctx, what+" was read again")
		}
		failing = err != nil
	}
}
