package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Compacted says what became of the objects that the database keeps of a project.
type Compacted string

const (
	CompactedNothing Compacted = "nothing" // they are as they were
	CompactedBase    Compacted = "base"    // a new base stands for all packs
	CompactedDropped Compacted = "dropped" // packs are gone whose time in transit was over, or that a base stands for
)

// Maintained says what the maintenance of a repository did.
type Maintained struct {
	Project string `json:"project"`
	Packed  string `json:"packed"` // "nothing", "loose" or "all" objects
	Kept    int    `json:"kept"`   // refs that keep objects which no other ref reaches
	Peers   int    `json:"peers"`  // refs of peers that nothing is fetched from, which were removed
	Pruned  int    `json:"pruned"` // objects
	// Compacted says what was done in the database.
	Compacted Compacted `json:"compacted"`
	// Left says why nothing was pruned; "" if all was that could be. Busy says that the next maintenance may.
	Left string `json:"left,omitempty"`
	Busy bool   `json:"busy,omitempty"`
}

// maintainPatience is how long [Maintain] waits for each word of the daemon, which says every second that it goes on.
const maintainPatience = 30 * time.Second

// Maintain asks the daemon at socket to maintain the repository dir, and waits until it has. It calls progress with what
// the daemon does.
func Maintain(ctx context.Context, socket, dir string, progress func(string)) (m Maintained, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return m, fmt.Errorf("the site daemon does not answer at %s: %w", socket, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	this := wire.Process{PID: os.Getpid(), Parent: os.Getppid(), ParentStart: "-"}
	err = wire.Request{State: wire.StateMaintain, Dir: dir, Process: &this, Limit: maintainPatience}.Write(conn)
	if err == nil {
		err = conn.(*net.UnixConn).CloseWrite()
	}
	if err != nil {
		return m, err
	}
	conn.SetReadDeadline(time.Now().Add(maintainPatience))
	answer, err := wire.ReadResponse(conn, func(text string) {
		if ctx.Err() == nil {
			conn.SetReadDeadline(time.Now().Add(maintainPatience))
		}
		if text != "" {
			progress(text)
		}
	})
	switch {
	case ctx.Err() != nil:
		return m, context.Cause(ctx)
	case err != nil:
		return m, fmt.Errorf("the site daemon at %s went away: %w", socket, err)
	case !answer.OK:
		return m, errors.New(strings.Join(answer.Lines, "; "))
	}
	return m, json.Unmarshal([]byte(strings.Join(answer.Lines, "\n")), &m)
}
