// Evaluates queries of PromQL over scraped metrics, by Prometheus' own parser of scrapes, storage and engine.
//
// A request is one JSON object on standard input, the answer one on standard output.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

type request struct {
	// In the order of their time.
	Scrapes []scrape `json:"scrapes"`
	// Queries of PromQL.
	Queries []string `json:"queries"`
	// Distance of two evaluations in seconds.
	Step int64 `json:"step"`
}

type scrape struct {
	// When, in seconds since the epoch.
	At int64 `json:"at"`
	// What the endpoint said its text is.
	ContentType string `json:"contentType"`
	Text        string `json:"text"`
	// Labels of the target. Those of a series win, as with honor_labels.
	Labels map[string]string `json:"labels"`
}

type answer struct {
	// Labels of each series that has a number at any time.
	Series []map[string]string `json:"series"`
	Error  string              `json:"error,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func run() error {
	var asked request
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return err
	}
	if len(asked.Scrapes) == 0 || asked.Step <= 0 {
		return errors.New("scrapes and a step are needed")
	}
	directory, err := os.MkdirTemp("", "promql")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	storage, err := tsdb.Open(directory, nil, nil, tsdb.DefaultOptions(), tsdb.NewDBStats())
	if err != nil {
		return err
	}
	defer storage.Close()
	for _, scrape := range asked.Scrapes {
		if err := scrape.store(storage); err != nil {
			return fmt.Errorf("scrape of %v: %w", scrape.Labels, err)
		}
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{}),
	})
	begin := time.Unix(asked.Scrapes[0].At, 0)
	end := time.Unix(asked.Scrapes[len(asked.Scrapes)-1].At, 0)
	answers := make([]answer, 0, len(asked.Queries))
	for _, query := range asked.Queries {
		found, err := evaluate(engine, storage, query, begin, end, time.Duration(asked.Step)*time.Second)
		one := answer{Series: found}
		if err != nil {
			one.Error = err.Error()
		}
		answers = append(answers, one)
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

func (scrape scrape) store(storage *tsdb.DB) error {
	parsed, err := textparse.New([]byte(scrape.Text), scrape.ContentType, nil, textparse.ParserOptions{})
	if err != nil {
		return err
	}
	appender := storage.Appender(context.Background())
	for {
		entry, err := parsed.Next()
		if errors.Is(err, io.EOF) {
			return appender.Commit()
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := parsed.Series()
		var own labels.Labels
		parsed.Labels(&own)
		all := labels.NewBuilder(own)
		for name, value := range scrape.Labels {
			if !own.Has(name) {
				all.Set(name, value)
			}
		}
		if _, err := appender.Append(0, all.Labels(), scrape.At*1000, value); err != nil {
			return fmt.Errorf("%v: %w", own, err)
		}
	}
}

func evaluate(
	engine *promql.Engine, storage *tsdb.DB, text string, begin, end time.Time, step time.Duration,
) ([]map[string]string, error) {
	query, err := engine.NewRangeQuery(context.Background(), storage, nil, text, begin, end, step)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	matrix, err := query.Exec(context.Background()).Matrix()
	if err != nil {
		return nil, err
	}
	found := []map[string]string{}
	for _, series := range matrix {
		for _, point := range series.Floats {
			if !math.IsNaN(point.F) {
				found = append(found, series.Metric.Map())
				break
			}
		}
	}
	return found, nil
}
