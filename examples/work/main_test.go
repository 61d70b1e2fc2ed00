package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// processVariable tells a process that a test started to be the program.
const processVariable = "REFDB_WORK_PROCESS"

// Short leases, so that they end soon.
const (
	staleAfter = 2 * time.Second
	heartbeat  = 400 * time.Millisecond
)

func TestMain(m *testing.M) {
	if os.Getenv(processVariable) == "" {
		os.Exit(m.Run())
	}
	if err := run(context.Background(), os.Args[1:], refdb.Options{StaleAfter: staleAfter, Heartbeat: heartbeat}); err != nil {
		fmt.Fprintln(os.Stderr, "work:", err)
		os.Exit(1)
	}
}
