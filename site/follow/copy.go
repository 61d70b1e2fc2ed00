package follow

import (
	"context"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// Copy returns this site's copy of a project, and the configuration with the project's rules. The
// error wraps [config.ErrNotConfigured] if the site does not follow the project.
func (f *Follower) Copy(ctx context.Context, project string) (*config.Config, config.Repository, error) {
	return f.ruled(ctx, project)
}
