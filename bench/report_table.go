package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

const settingWidth = 110 // columns

// printTable prints medians. Of the first metric it also prints the least and the
// most, and the ratio to the baseline.
func printTable(out io.Writer, r report) {
	w := r.workload
	fmt.Fprintf(out, "\n%s  %s\n", w.id, w.title)
	for line := range strings.Lines(text.WrapSoft(w.setting, settingWidth)) {
		fmt.Fprintln(out, "    "+strings.TrimSpace(line))
	}
	fmt.Fprintln(out)
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.SuppressTrailingSpaces()
	t.SetStyle(bareStyle())
	header := table.Row{"case", "contestant"}
	var configs []table.ColumnConfig
	for i, m := range w.metrics {
		header = append(header, m.header)
		if i == 0 {
			header = append(header, "min–max", ratioHeader(w))
		}
	}
	for n := 3; n <= len(header); n++ {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	t.AppendHeader(header)
	previous := ""
	for _, res := range r.results {
		if previous != "" && res.Case != previous {
			t.AppendSeparator()
		}
		t.AppendRow(row(w.metrics, res, res.Case == previous))
		previous = res.Case
	}
	t.Render()
}

func row(metrics []metric, r result, sameCase bool) table.Row {
	cells := table.Row{r.Case, r.Contestant}
	if sameCase {
		cells[0] = ""
	}
	for i, m := range metrics {
		s, ok := r.Metrics[m.name]
		if !ok {
			cells = append(cells, "–")
		} else {
			cells = append(cells, number(s.Median, m.decimals))
		}
		if i == 0 {
			cells = append(cells, number(s.Min, m.decimals)+"–"+number(s.Max, m.decimals), ratioCell(r))
		}
	}
	return cells
}

func ratioHeader(w workload) string {
	if w.less {
		return "ratio (less is better)"
	}
	return "ratio"
}

func ratioCell(r result) string {
	if r.Contestant == r.Baseline {
		return "1"
	}
	return fmt.Sprintf("%.2f", r.Ratio)
}

// number writes thousands apart, so that columns can be compared by eye.
func number(v float64, decimals int) string {
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	whole := len(s)
	if decimals > 0 {
		whole -= decimals + 1
	}
	for i := whole - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// bareStyle separates columns by spaces and cases by an empty line.
func bareStyle() table.Style {
	style := table.StyleDefault
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = "  "
	style.Box.MiddleHorizontal = " "
	style.Format.Header = text.FormatDefault
	style.Options = table.OptionsNoBordersAndSeparators
	return style
}
