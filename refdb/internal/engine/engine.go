// Package engine contains the code that package refdb shares with its handles, such as package
// intents: a driver that may not be open yet, retries of requests, writes whose reply may be lost,
// listings in pages, and the comparison of the database's server with the changes that this process
// knows.
package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Config contains the dependencies and settings of an Engine. The caller has validated its
// fields; they are not zero unless their comments say so.
type Config struct {
	Site       string
	Owner      string // the process, in the rows that it writes
	By         string // the requester, or ""
	StaleAfter time.Duration
	Logger     *slog.Logger
	DigestKey  []byte
	Journal    driver.Journal     // nil for a journal in memory; no server then waits for this process
	Observe    func(driver.Event) // may be nil
	// Changed is called after each request that may have changed a ref.
	Changed func()
}

// An Engine sends requests to a driver. Its methods may be called concurrently.
type Engine struct {
	Config
	// Closing ends when Close is called; Lasting ends later, when background work must end too.
	Closing, Lasting context.Context

	driver      *opening
	witness     bool // the site is a witness: it has a journal of its own
	comparisons comparisons
	begun       begun
	schemaErr   atomic.Pointer[error] // why the schema is no longer supported; nil if it is

	close, cancel context.CancelFunc
	closeOnce     sync.Once
	closeErr      error

	mu         sync.Mutex // no background work starts after Close was called
	background sync.WaitGroup
}

// New returns an Engine on d.
func New(d driver.Driver, c Config) *Engine { return start(&opening{driver: d}, c) }

// Open returns an Engine on the driver that open returns. It calls open until that succeeds, and
// returns after the first attempt or after a second, whichever comes first. The context of open
// lasts until the Engine is closed.
func Open(open func(context.Context) (driver.Driver, error), c Config) *Engine {
	return start(&opening{open: open}, c)
}

func start(d *opening, c Config) *Engine {
	e := &Engine{Config: c, driver: d, witness: c.Journal != nil}
	e.comparisons.turn = make(chan struct{}, 1)
	if e.Journal == nil {
		e.Journal = &recent{}
	}
	e.Lasting, e.cancel = context.WithCancel(context.Background())
	e.Closing, e.close = context.WithCancel(e.Lasting)
	d.start(e.Logger)
	if _, ok, err := RoleOf[driver.SchemaChecker](e); ok || err != nil {
		e.InBackground(e.watchSchema)
	}
	return e
}

// Close waits for background work, and closes the driver. It calls stop once no further background
// work can start.
func (e *Engine) Close(stop func()) error {
	e.closeOnce.Do(func() {
		e.mu.Lock()
		e.close()
		e.mu.Unlock()
		stop()
		// Cleaning up after abandoned requests may take this long.
		grace := time.AfterFunc(GracePeriod, e.cancel)
		e.background.Wait()
		grace.Stop()
		e.cancel()
		e.closeErr = e.driver.close()
	})
	return e.closeErr
}

// Driver returns the driver, or an error that wraps ErrUnavailable and says why it is not open.
func (e *Engine) Driver() (driver.Driver, error) { return e.driver.get() }

// Opened is closed when the driver is open, or the attempts to open it have ended.
func (e *Engine) Opened() <-chan struct{} { return e.driver.done }

// RoleOf is [driver.RoleOf] of a driver that may not be open. Its error is that of [Engine.Driver].
func RoleOf[R any](e *Engine) (r R, ok bool, err error) {
	d, err := e.Driver()
	if err != nil {
		return r, false, err
	}
	r, ok = driver.RoleOf[R](d)
	return r, ok, nil
}

// InBackground runs f in a goroutine that Close waits for. It returns false if Close was called
// already.
func (e *Engine) InBackground(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Closing.Err() != nil {
		return false
	}
	e.background.Go(f)
	return true
}

// InBackgroundOrNow is InBackground, but once Close was called it runs f at once: Close may still
// wait for the caller.
func (e *Engine) InBackgroundOrNow(f func()) {
	if !e.InBackground(f) {
		f()
	}
}

// Digest returns the digest that identifies a lock, or a set of refs, in logs.
func (e *Engine) Digest(project string, refs []string) string {
	return driver.Digest(e.DigestKey, project, refs[0])
}

// Origin returns the origin of a new operation of this process.
func (e *Engine) Origin() driver.Origin {
	return driver.Origin{ID: rand.Text(), Owner: e.Owner, By: e.By}
}

// SchemaPoll is the interval at which an Engine checks whether it still supports the schema.
const SchemaPoll = 5 * time.Second

// watchSchema checks the schema until the Engine is closed. While the schema is not supported, the
// Engine begins no new requests: rows that this program writes might lack columns that a newer
// schema requires, or not be recorded in the history.
func (e *Engine) watchSchema() {
	for Sleep(e.Closing, SchemaPoll); e.Closing.Err() == nil; Sleep(e.Closing, SchemaPoll) {
		c, ok, err := RoleOf[driver.SchemaChecker](e)
		if ok {
			ctx, cancel := e.AttemptContext(e.Closing)
			err = c.CheckSchema(ctx)
			cancel()
		}
		switch unfit := errors.Is(err, driver.ErrSchema); {
		case unfit:
			if e.schemaErr.Swap(&err) == nil {
				e.Logger.Error("the schema no longer fits: nothing is locked or written until it does", "reason", err.Error())
			}
		case err == nil:
			if e.schemaErr.Swap(nil) != nil {
				e.Logger.Info("the schema fits again")
			}
		}
	}
}

// SchemaError returns nil while the schema is supported, and otherwise an error that wraps
// ErrSchema.
func (e *Engine) SchemaError() error {
	if err := e.schemaErr.Load(); err != nil {
		return *err
	}
	return nil
}
