package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/globalrefdb/globalrefdb/bench/internal/command"
	"github.com/globalrefdb/globalrefdb/bench/internal/machine"
)

// childArgument, as the first argument, makes this program a child of another run
// of it. The second argument names its role. It talks JSON on stdin and stdout.
const childArgument = "child-of-bench"

const (
	handOffRole = "hand-off"
	listRole    = "list"
	serviceRole = "service"
	extendRole  = "extend"
	feedRole    = "feed"
	backlogRole = "backlog"
	cgiRole     = "cgi"
)

// runChild is the main function of a child.
func runChild(ctx context.Context, role string, in io.Reader, out io.Writer) error {
	switch role {
	case handOffRole:
		return handOffChild(ctx, json.NewDecoder(in), json.NewEncoder(out))
	case feedRole:
		return feedChild(ctx, json.NewDecoder(in), json.NewEncoder(out))
	case backlogRole:
		return backlogChild(ctx, json.NewDecoder(in), json.NewEncoder(out))
	case cgiRole:
		return cgiChild(ctx, json.NewDecoder(in), json.NewEncoder(out))
	case serviceRole:
		return serviceChild(ctx, json.NewDecoder(in), json.NewEncoder(out))
	case extendRole:
		return extendChild(ctx, json.NewDecoder(in), json.NewEncoder(out))
	case listRole:
		return listChild(ctx, json.NewDecoder(in), json.NewEncoder(out))
	}
	return fmt.Errorf("no role %q", role)
}

// readInChild lets a child read n things, and returns how many it read per second, by its own clock,
// and its peak of memory.
func readInChild(ctx context.Context, role string, task any, n int) (sample, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, self, childArgument, role)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &said
	peak, err := command.Watch(cmd)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, said.Bytes())
	}
	var took time.Duration
	if err := json.Unmarshal(out.Bytes(), &took); err != nil {
		return nil, err
	}
	return sample{perSecond: float64(n) / took.Seconds(), peakMemory: machine.Megabytes(peak)}, nil
}

// A child is this program, run again.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	encode *json.Encoder
	decode *json.Decoder
	errors bytes.Buffer
}

// startChild starts a child with a task. The child ends with ctx, or by stop.
func startChild(ctx context.Context, role string, task any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, childArgument, role)}
	c.cmd.Stderr = &c.errors
	c.in, err = c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.encode, c.decode = json.NewEncoder(c.in), json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if err := c.send(task); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *child) send(v any) error { return c.encode.Encode(v) }

// receive waits for the child's next message.
func (c *child) receive(v any) error {
	err := c.decode.Decode(v)
	if err == nil {
		return nil
	}
	c.stop()
	if said := bytes.TrimSpace(c.errors.Bytes()); len(said) > 0 {
		err = errors.New(string(said))
	}
	return fmt.Errorf("a child process failed: %w", err)
}

// stop closes the child's stdin, which ends a child that waits for a message, and
// waits for the child's end.
func (c *child) stop() {
	c.in.Close()
	_ = c.cmd.Wait()
}
