package spanner

import (
	"context"
	"os"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

// emulatorVariable is the variable with an emulator's address that Google's client libraries use.
const emulatorVariable = "SPANNER_EMULATOR_HOST"

// Emulator returns the option to use the Spanner emulator at that address (host:port), whatever
// SPANNER_EMULATOR_HOST is set to. A driver works around an emulator's limits, and recognizes an
// emulator only by this option or that variable.
func Emulator(address string) option.ClientOption {
	return emulatorOption{option.WithEndpoint("passthrough:///" + address), address}
}

type emulatorOption struct {
	option.ClientOption
	address string
}

// findEmulator returns the address of the emulator to use, if any, and opts with an emulatorOption
// replaced by options of the client.
func findEmulator(opts []option.ClientOption) (address string, all []option.ClientOption) {
	address = os.Getenv(emulatorVariable)
	for _, o := range opts {
		all = append(all, o)
		if e, ok := o.(emulatorOption); ok {
			address = e.address
			all = append(all, option.WithoutAuthentication(),
				option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
		}
	}
	return address, all
}

// An emulatorMutex admits one transaction of several requests at a time: read-write, or a read-only
// snapshot. An emulator runs one read-write transaction per session, and the client puts all of
// them into one session. The service has no such limit: there the mutex is nil, and admits all
// transactions.
type emulatorMutex chan struct{}

func newEmulatorMutex(emulated bool) emulatorMutex {
	if !emulated {
		return nil
	}
	return make(emulatorMutex, 1)
}

// lock waits for the mutex until ctx ends.
func (m emulatorMutex) lock(ctx context.Context) error {
	if m == nil {
		return nil
	}
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m emulatorMutex) unlock() {
	if m != nil {
		<-m
	}
}

// emulatorForgot reports whether err may mean that an emulator has forgotten the transaction. An
// emulator does so when another transaction begins in the same session. The mutex does not prevent
// that, because an abandoned request may begin a transaction later. A restarted emulator also
// reuses session names: then another process may share this one's session permanently.
func (d *Driver) emulatorForgot(err error) bool {
	code := spanner.ErrCode(err)
	return d.emulator != "" && !sessionLost(err) && (code == codes.NotFound || code == codes.FailedPrecondition)
}
