package main

import (
	"fmt"
	"io"
	"sort"
	"strings"

	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// printDeclarations writes every function overload of the environment, in the order in which the checker tries them:
// function, overload, m for member or g for global, arguments, result.
func printDeclarations(out io.Writer) error {
	result := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true}).CompileCELExpression("true", dracel.Options{})
	if result.Error != nil {
		return result.Error
	}
	functions := result.Environment.Functions()
	names := make([]string, 0, len(functions))
	for name, function := range functions {
		// Kept by cel-go for old programs, unknown to the checker.
		if function.IsDeclarationDisabled() {
			continue
		}
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, overload := range functions[name].OverloadDecls() {
			style := "g"
			if overload.IsMemberFunction() {
				style = "m"
			}
			arguments := make([]string, 0, len(overload.ArgTypes()))
			for _, argument := range overload.ArgTypes() {
				arguments = append(arguments, argument.String())
			}
			if _, err := fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", name, overload.ID(), style, strings.Join(arguments, " ; "), overload.ResultType().String()); err != nil {
				return err
			}
		}
	}
	macros := make([]string, 0)
	for _, macro := range result.Environment.Macros() {
		macros = append(macros, macro.MacroKey())
	}
	sort.Strings(macros)
	for _, macro := range macros {
		fmt.Fprintf(out, "#macro\t%s\n", macro)
	}
	for _, variable := range result.Environment.Variables() {
		fmt.Fprintf(out, "#variable\t%s\t%s\n", variable.Name(), variable.Type().String())
	}
	return nil
}
