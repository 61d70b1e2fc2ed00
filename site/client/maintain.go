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

// patience is how long [Maintain] and [CatchUp] wait for each sign of life of the daemon, which sends
// one every second.
const patience = 30 * time.Second

// Maintain asks the daemon at socket to maintain the repository dir, and waits until it has. It calls progress with what
// the daemon does.
func Maintain(ctx context.Context, socket, dir string, progress func(string)) (m Maintained, err error) {
	answer, err := askPatiently(ctx, socket, wire.Request{State: wire.StateMaintain, Dir: dir}, progress)
	switch {
	case err != nil:
		return m, err
	case !answer.OK:
		return m, errors.New(strings.Join(answer.Lines, "; "))
	}
	return m, json.Unmarshal([]byte(strings.Join(answer.Lines, "\n")), &m)
}

// CatchUp asks the daemon at socket to bring refs of the repository dir to the database's values.
// Package catchup defines the body and the answer.
func CatchUp(ctx context.Context, socket, dir string, body []byte) (wire.Response, error) {
	return askPatiently(ctx, socket, wire.Request{State: wire.StateCatchUp, Dir: dir, Body: body}, func(string) {})
}

// askPatiently waits for an answer as long as the daemon shows signs of life. It calls progress with
// what the daemon does.
func askPatiently(ctx context.Context, socket string, q wire.Request, progress func(string)) (answer wire.Response, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return answer, fmt.Errorf("the site daemon does not answer at %s: %w", socket, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	q.Process, q.Limit = &wire.Process{PID: os.Getpid(), Parent: os.Getppid(), ParentStart: "-"}, patience
	if err := errors.Join(q.Write(conn), conn.(*net.UnixConn).CloseWrite()); err != nil {
		return answer, err
	}
	conn.SetReadDeadline(time.Now().Add(patience))
	answer, err = wire.ReadResponse(conn, func(text string) {
		if ctx.Err() == nil {
			conn.SetReadDeadline(time.Now().Add(patience))
		}
		if text != "" {
			progress(text)
		}
	})
	switch {
	case ctx.Err() != nil:
		return answer, context.Cause(ctx)
	case err != nil:
		return answer, fmt.Errorf("the site daemon at %s went away: %w", socket, err)
	}
	return answer, nil
}
