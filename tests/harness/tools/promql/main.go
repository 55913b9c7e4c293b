// Evaluates queries of PromQL and alerting rules over scraped metrics, by Prometheus' own parser of scrapes, storage and engines.
//
// A request is one JSON object on standard input, the answer one on standard output: a list of answers to the queries or, with rules,
// of alerts.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/tsdb"
)

type request struct {
	// In the order of their time.
	Scrapes []scrape `json:"scrapes"`
	// Queries of PromQL.
	Queries []string `json:"queries"`
	// Text of a rule file.
	Rules string `json:"rules"`
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

type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// When it began to fire, in seconds since the epoch.
	At int64 `json:"at"`
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
	step := time.Duration(asked.Step) * time.Second
	if asked.Rules != "" {
		alerts, err := fired(engine, storage, asked.Rules, begin, end, step)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(alerts)
	}
	answers := make([]answer, 0, len(asked.Queries))
	for _, query := range asked.Queries {
		found, err := evaluate(engine, storage, query, begin, end, step)
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

// All alerts that fired at any time.
func fired(
	engine *promql.Engine, storage *tsdb.DB, text string, begin, end time.Time, step time.Duration,
) ([]alert, error) {
	parse := parser.NewParser(parser.Options{})
	logger := promslog.NewNopLogger()
	groups, errs := rulefmt.Parse([]byte(text), false, model.UTF8Validation, parse, logger)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	query := rules.EngineQueryFunc(engine, storage)
	found := []alert{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			expression, err := parse.ParseExpr(rule.Expr)
			if err != nil {
				return nil, err
			}
			alerting := rules.NewAlertingRule(
				rule.Alert, expression, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
				labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, logger,
			)
			told := map[string]bool{}
			for at := begin; !at.After(end); at = at.Add(step) {
				if _, err := alerting.Eval(context.Background(), 0, at, query, &url.URL{}, 0); err != nil {
					return nil, fmt.Errorf("%s: %w", rule.Alert, err)
				}
				for _, active := range alerting.ActiveAlerts() {
					if active.State == rules.StateFiring && !told[active.Labels.String()] {
						told[active.Labels.String()] = true
						found = append(found, alert{active.Labels.Map(), active.Annotations.Map(), at.Unix()})
					}
				}
			}
		}
	}
	return found, nil
}
