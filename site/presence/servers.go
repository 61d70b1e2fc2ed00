package presence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// serversPrefix is the prefix of refs, in [Project], whose values are the sites' servers with
// sessions.
const serversPrefix = "refs/servers/"

// A Server identifies the server of a site, such as its Gerrit, among those of all sites.
type Server struct {
	Instance string `json:"instance,omitempty"` // different at each site
	Server   string `json:"server,omitempty"`   // the same at all sites
}

var (
	// ErrInstance means that another live site has a server with this instance ID.
	ErrInstance = errors.New("another site's server has the same instance ID")
	// ErrServer means that another live site has a server with another server ID.
	ErrServer = errors.New("another site's server has another server ID")
)

// RecordServer records the server of a site, unless it is incompatible with those of the other live
// sites: then the error wraps [ErrInstance] or [ErrServer] and names the site. If two are recorded
// at once, both may be refused.
func RecordServer(ctx context.Context, db *refdb.DB, site string, s Server) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	before, err := db.Put(ctx, Project, serversPrefix+site, refdb.Value(text))
	if err != nil {
		return err
	}
	// The record is written before the others are read, so at least one of two concurrent calls
	// sees the other.
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

// CheckServer returns the error with which [RecordServer] would refuse the server of a site. It
// records nothing.
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
		// A later version may have written another format.
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

// ForgetServer removes the record of a site's server that has ended.
func ForgetServer(ctx context.Context, db *refdb.DB, site string) error {
	_, err := db.Put(ctx, Project, serversPrefix+site, refdb.Deleted)
	return err
}
