package main

import (
	"context"
	"encoding/json"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

type celRequest struct {
	ID                       json.RawMessage                                           `json:"id"`
	Expression               string                                                    `json:"expression"`
	Driver                   string                                                    `json:"driver"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
	// Not in the protocol's minimum: turns the alpha gate DRAListTypeAttributes on.
	ListTypeAttributes bool `json:"listTypeAttributes"`
	// Not in the protocol's minimum: asks what the API server says when the expression is written, the cost it
	// estimates, and the overloads that the checker found.
	Admission bool `json:"admission"`
}

type celResponse struct {
	ID           json.RawMessage `json:"id,omitempty"`
	Match        *bool           `json:"match"`
	CompileError string          `json:"compileError,omitempty"`
	MatchError   string          `json:"matchError,omitempty"`
	Cost         *uint64         `json:"cost,omitempty"`
	OutputType   string          `json:"outputType,omitempty"`
	MaxCost      *uint64         `json:"maxCost,omitempty"`
	// Set to what is wrong, as in validateCELSelector of pkg/apis/resource/validation.
	AdmissionError string `json:"admissionError,omitempty"`
	// Overloads of the calls for which the checker found exactly one.
	Overloads []string `json:"overloads,omitempty"`
}

func answerCEL(line []byte) (response celResponse) {
	var request celRequest
	if err := json.Unmarshal(line, &request); err != nil {
		response.CompileError = "bad request: " + err.Error()
		return response
	}
	response.ID = request.ID
	// Some expressions make cel-go panic at compile time. A panic is upstream's answer too: "refused".
	defer func() {
		if reason := recover(); reason != nil {
			response.CompileError = fmt.Sprintf("panic: %v", reason)
			response.AdmissionError = response.CompileError
		}
	}()
	// ConsumableCapacity is on by default, ListTypeAttributes is alpha.
	compiler := dracel.GetCompiler(dracel.Features{
		EnableConsumableCapacity: true,
		EnableListTypeAttributes: request.ListTypeAttributes,
	})
	if request.Admission {
		envType := environment.NewExpressions
		created := compiler.CompileCELExpression(request.Expression, dracel.Options{EnvType: &envType})
		if len(request.Expression) > resourceapi.CELSelectorExpressionMaxLength {
			response.AdmissionError = field.TooLong(nil, "", resourceapi.CELSelectorExpressionMaxLength).ErrorBody()
		} else if created.Error != nil {
			response.AdmissionError = created.Error.Error()
		} else if created.MaxCost > resourceapi.CELSelectorExpressionMaxCost {
			response.AdmissionError = field.Forbidden(nil, "too complex, exceeds cost limit").ErrorBody()
		}
	}
	result := compiler.CompileCELExpression(request.Expression, dracel.Options{DisableCostEstimation: !request.Admission})
	if result.Error != nil {
		response.CompileError = result.Error.Error()
		return response
	}
	response.OutputType = result.OutputType.String()
	if request.Admission {
		response.MaxCost = &result.MaxCost
		response.Overloads = overloads(result, request.Expression)
	}
	match, details, err := result.DeviceMatches(context.Background(), dracel.Device{
		Driver:                   request.Driver,
		AllowMultipleAllocations: request.AllowMultipleAllocations,
		Attributes:               request.Attributes,
		Capacity:                 request.Capacity,
	})
	if details != nil {
		response.Cost = details.ActualCost()
	}
	if err != nil {
		response.MatchError = err.Error()
		return response
	}
	response.Match = &match
	return response
}

// overloads are those of the calls for which the checker found exactly one.
func overloads(result dracel.CompilationResult, expression string) []string {
	tree, issues := result.Environment.Compile(expression)
	if issues != nil {
		return nil
	}
	var found []string
	for _, reference := range tree.NativeRep().ReferenceMap() {
		if len(reference.OverloadIDs) == 1 {
			found = append(found, reference.OverloadIDs[0])
		}
	}
	return found
}
