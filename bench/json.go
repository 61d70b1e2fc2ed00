package main

// A jsonDocument is the whole run, for machines.
type jsonDocument struct {
	Machine machine      `json:"machine"`
	Rounds  int          `json:"rounds"`
	Seconds float64      `json:"seconds_per_measurement"`
	Tables  []jsonReport `json:"tables"`
}

type jsonReport struct {
	Workload string   `json:"workload"`
	Title    string   `json:"title"`
	Setting  string   `json:"setting"`
	Compared string   `json:"compared"` // the metric that ratios are about
	Less     bool     `json:"less_is_better"`
	Results  []result `json:"results"`
}

func document(o options, reports []report) jsonDocument {
	d := jsonDocument{Machine: thisMachine(), Rounds: o.rounds, Seconds: o.d.Seconds(), Tables: []jsonReport{}}
	for _, r := range reports {
		w := r.workload
		d.Tables = append(d.Tables, jsonReport{w.id, w.title, w.setting, w.metrics[0].name, w.less, r.results})
	}
	return d
}
