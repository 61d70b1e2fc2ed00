package presence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// serversPrefix begins the refs, in [Project], whose values are what servers with sessions sites have.
const serversPrefix = "refs/servers/"

// A Server is what tells the server of a site, such as its Gerrit, from those of the other sites.
type Server struct {
	Instance string `json:"instance,omitempty"` // another one at each site
	Server   string `json:"server,omitempty"`   // the same at all sites
}

var (
	// ErrInstance: another site that lives has a server with this instance ID.
	ErrInstance = errors.New("another site's server has the same instance ID")
	// ErrServer: another site that lives has a server with another server ID.
	ErrServer = errors.New("another site's server has another server ID")
)

// RecordServer records the server of a site, unless it does not go with those of the other sites that live: then the error wraps
// [ErrInstance] or [ErrServer] and names the site. Of two that are recorded at once, both may be refused.
func RecordServer(ctx context.Context, db *refdb.DB, site string, s Server) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	before, err := db.Put(ctx, Project, serversPrefix+site, refdb.Value(text))
	if err != nil {
		return err
	}
	// It is written before the others are read: so one of two sees the other.
	err = s.goesWithOthers(ctx, db, site)
	if errors.Is(err, ErrInstance) || errors.Is(err, ErrServer) {
		if before == refdb.Unknown || before == refdb.Value(text) {
			before = refdb.Deleted
		}
		_, putErr := db.Put(ctx, Project, serversPrefix+site, before)
		err = errors.Join(err, putErr)
	}
	return err
}

// CheckServer returns the error with which [RecordServer] would refuse the server of a site. It records nothing.
func CheckServer(ctx context.Context, db *refdb.DB, site string, s Server) error {
	return s.goesWithOthers(ctx, db, site)
}

func (s Server) goesWithOthers(ctx context.Context, db *refdb.DB, site string) error {
	alive := map[string]bool{}
	for l, err := range db.Locks(ctx, refdb.LockFilter{Project: Project, Prefix: refPrefix}) {
		if err != nil {
			return err
		}
		alive[strings.TrimPrefix(l.Ref, refPrefix)] = !l.Stale()
	}
	for ref, err := range db.Refs(ctx, Project, serversPrefix) {
		if err != nil {
			return err
		}
		other := strings.TrimPrefix(ref.Name, serversPrefix)
		var o Server
		// What a later version wrote may be another thing.
		if other == site || !alive[other] || json.Unmarshal([]byte(ref.Value), &o) != nil {
			continue
		}
		switch {
		case s.Instance != "" && s.Instance == o.Instance:
			return fmt.Errorf("%w: %s has %q: give each site's server its own", ErrInstance, other, s.Instance)
		case s.Server != "" && o.Server != "" && s.Server != o.Server:
			return fmt.Errorf("%w: that of %s is %q, this one's %q: all must be copies of one server", ErrServer, other, o.Server, s.Server)
		}
	}
	return nil
}

// ForgetServer removes the record of a site's server, which has ended.
func ForgetServer(ctx context.Context, db *refdb.DB, site string) error {
	_, err := db.Put(ctx, Project, serversPrefix+site, refdb.Deleted)
	return err
}
