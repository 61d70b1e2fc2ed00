package sqlite

import (
	"encoding/json"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

const (
	setQueue = `UPDATE locks SET waiting = ?3 WHERE project = ?1 AND ref = ?2`

	reserve = `
		UPDATE locks SET owner = ?3, heartbeat = ?4, stale_after = ?5, nonce = ?6, waiting = ?7
		WHERE project = ?1 AND ref = ?2`

	// Most locks are waited for by nobody: those end without a look at them.
	dropUnqueued = dropLocks + ` AND waiting IS NULL`
)

// queueOf reads the column waiting.
func queueOf(text string) queue.Queue {
	var texts []string
	if text == "" || json.Unmarshal([]byte(text), &texts) != nil {
		return nil
	}
	return queue.Read(texts)
}

// waiting is what the column keeps of q.
func waiting(q queue.Queue) any {
	if len(q) == 0 {
		return nil
	}
	return asJSON(q.Texts())
}

// queues leaves those rows of refs that have a queue with it; new rows have none.
func (t *tx) queues(project string, refs []string, queues []queue.Queue) error {
	for i, q := range queues {
		if len(q) == 0 {
			continue
		}
		if _, err := t.exec(setQueue, project, refs[i], waiting(q)); err != nil {
			return err
		}
	}
	return nil
}

// leave leaves the rows of refs as a decision wants them.
func (t *tx) leave(project string, refs []string, after []queue.After) error {
	var ended []string
	for i, a := range after {
		var err error
		switch a.Change {
		case queue.Queues:
			_, err = t.exec(setQueue, project, refs[i], waiting(a.Queue))
		case queue.Reserve:
			_, err = t.exec(reserve, project, refs[i], a.Lock.Owner, a.Lock.Heartbeat.UnixMicro(), microsOf(a.Lock.StaleAfter),
				orNull(a.Nonce), waiting(a.Queue))
		case queue.Delete:
			ended = append(ended, refs[i])
		}
		if err != nil {
			return err
		}
	}
	if len(ended) == 0 {
		return nil
	}
	_, err := t.exec(dropLocks, project, asJSON(ended))
	return err
}

// end ends the locks on refs, all of which stand: they go to next, or to whoever
// waits for them.
func (t *tx) end(project string, refs []string, next refdb.Waiter) error {
	n, err := t.exec(dropUnqueued, project, asJSON(refs))
	if err != nil || int(n) == len(refs) {
		return err
	}
	return t.handOn(project, refs, func(s state) queue.After {
		return queue.End(*s.lock, s.queue, next, timeOf(t.now))
	})
}

// handOn leaves the rows that stand on refs as decide says.
func (t *tx) handOn(project string, refs []string, decide func(state) queue.After) error {
	states, err := t.look(project, refs)
	if err != nil {
		return err
	}
	after := make([]queue.After, len(refs))
	for i, s := range states {
		if s.lock != nil {
			after[i] = decide(s)
		}
	}
	return t.leave(project, refs, after)
}

// unchanged reports whether all rows stay as they are.
func unchanged(after []queue.After) bool {
	return !slices.ContainsFunc(after, func(a queue.After) bool { return a.Change != queue.Stays })
}
