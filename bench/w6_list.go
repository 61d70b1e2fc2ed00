package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/bench/internal/report"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// listWorkload is W6's second half: reading a whole project.
func listWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := s.needPostgres(ctx); err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W6",
		title: "listing a whole project",
		setting: fmt.Sprintf("PostgreSQL %s: %seach in a process of its own, from its first request on. One statement: SELECT … ORDER BY ref, its rows read as they come; "+
			"it holds a snapshot all the while. Peak memory: the process's VmHWM.", s.postgres.version, postgresSetting),
		metrics: []metric{{perSecond, "refs/s", 0}, {peakMemory, "peak memory MB", 0}},
	}
	for _, n := range projectSizes() {
		url, err := s.fullProject(ctx, n)
		if err != nil {
			return workload{}, err
		}
		c := benchCase{name: report.Number(float64(n), 0) + " refs", baseline: string(listStatement)}
		for _, how := range []listing{listStatement, listRefdb} {
			c.contestants = append(c.contestants, contestant{string(how), func(ctx context.Context) (sample, error) {
				return readInChild(ctx, listRole, listTask{How: how, Database: url, Refs: n}, n)
			}})
		}
		w.cases = append(w.cases, c)
	}
	return w, nil
}

// fullProject makes a migrated database with n refs and returns its address.
func (s *servers) fullProject(ctx context.Context, n int) (string, error) {
	name := fmt.Sprintf("refs%d", n)
	if err := s.postgres.create(ctx, name, migratedTemplate); err != nil {
		return "", err
	}
	return s.postgres.URL(name), s.postgres.Connect(ctx, name, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, `INSERT INTO refs (project, ref, value, time)
			SELECT $1, 'refs/heads/branch-' || lpad(i::text, 7, '0'), $2, clock_timestamp() FROM generate_series(1, $3::int) AS i`,
			project, objectID(0), n)
		if err != nil {
			return err
		}
		// Now rather than during a measurement.
		_, err = c.Exec(ctx, "VACUUM ANALYZE refs")
		return err
	})
}

// A listing is a way to list, a contestant.
type listing string

const (
	listRefdb     listing = "refdb"
	listStatement listing = "one statement"
)

// A listTask tells a process what to list.
type listTask struct {
	How      listing
	Database string // its URL
	Refs     int    // how many it must find
}

// listChild is the main function of a process that lists.
func listChild(ctx context.Context, in *json.Decoder, out *json.Encoder) error {
	var task listTask
	if err := in.Decode(&task); err != nil {
		return err
	}
	list := listByStatement
	if task.How == listRefdb {
		list = listByRefdb
	}
	n, took, err := list(ctx, task.Database)
	if err == nil && n != task.Refs {
		err = fmt.Errorf("%d refs were listed, not %d", n, task.Refs)
	}
	if err != nil {
		return err
	}
	return out.Encode(took)
}

func listByRefdb(ctx context.Context, url string) (n int, took time.Duration, err error) {
	db, err := openRefdb(ctx, url, nil)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	start := time.Now()
	for _, err := range db.Refs(ctx, project, "") {
		if err != nil {
			return n, 0, err
		}
		n++
	}
	return n, time.Since(start), nil
}

func listByStatement(ctx context.Context, url string) (n int, took time.Duration, err error) {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	start := time.Now()
	rows, err := c.Query(ctx, `SELECT ref, value, time, op FROM refs WHERE project = $1 ORDER BY ref`, project)
	if err != nil {
		return 0, 0, err
	}
	var r refdb.Ref
	var at *time.Time
	var op *string
	_, err = pgx.ForEachRow(rows, []any{&r.Name, (*string)(&r.Value), &at, &op}, func() error { n++; return nil })
	return n, time.Since(start), err
}
