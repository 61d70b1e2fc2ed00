package site

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/smarthttp"
)

func TestTheFlagsOfSiteHTTP(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		at     smarthttp.Listen
		user   string
		cache  int
		stale  time.Duration
		refuse string
	}{
		{smarthttp.Listen{Address: "127.0.0.1:9470"}, "X-User", 256, 0, ""},
		{smarthttp.Listen{Address: "[::1]:9470"}, "X-User", 256, 0, ""},
		{smarthttp.Listen{Address: "localhost:9470"}, "X-User", 256, 0, ""},
		{smarthttp.Listen{Address: "/run/refdb/http", Metrics: "/run/refdb/metrics"}, "X-User", 1, 0, ""},
		{smarthttp.Listen{Address: "0.0.0.0:9470"}, "", 256, 0, ""},
		{smarthttp.Listen{Address: "0.0.0.0:9470"}, "X-User", 256, 0, "could claim to be any user"},
		{smarthttp.Listen{Address: "git.example.com:9470"}, "X-User", 256, 0, "could claim to be any user"},
		{smarthttp.Listen{Address: ":9470"}, "", 256, 0, "--listen"},
		{smarthttp.Listen{Address: "http"}, "", 256, 0, "--listen"},
		{smarthttp.Listen{Address: "127.0.0.1:9470", Metrics: "x"}, "", 256, 0, "--metrics"},
		{smarthttp.Listen{Address: "127.0.0.1:9470"}, "", 0, 0, "--cache"},
		{smarthttp.Listen{Address: "127.0.0.1:9470"}, "", 256, time.Minute, ""},
		{smarthttp.Listen{Address: "127.0.0.1:9470"}, "", 256, -time.Minute, "--stale-reads"},
	} {
		err := checkHTTP(row.at, row.user, row.cache, row.stale)
		if row.refuse == "" && err != nil || row.refuse != "" && (err == nil || !strings.Contains(err.Error(), row.refuse)) {
			t.Errorf("%+v: %v", row, err)
		}
	}
}
