package gitrepo

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// moveLimit is how long git may take to move one ref.
const moveLimit = time.Minute

// A Move changes what a ref holds, from one object ID to another. An empty ID stands for an absent ref.
type Move struct{ Ref, From, To string }

// MoveWithoutHooks moves a ref by git update-ref, without hooks, within a minute. If the ref does not hold
// m.From, nothing changes and git's error is returned. message goes to the reflog.
func (r *Repo) MoveWithoutHooks(ctx context.Context, m Move, message string) error {
	args := []string{"-c", "core.hooksPath=/dev/null", "update-ref", "--no-deref", "-m", message}
	from := m.From
	if from == "" {
		from = strings.Repeat("0", r.idBytes)
	}
	if m.To == "" {
		args = append(args, "-d", m.Ref, from)
	} else {
		args = append(args, m.Ref, m.To, from)
	}
	ctx, cancel := context.WithTimeout(ctx, moveLimit)
	defer cancel()
	if out, err := r.Command(ctx, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
