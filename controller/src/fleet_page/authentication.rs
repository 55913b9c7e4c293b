//! Access control of the fleet page.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tessera_api::fleet_view::PATH;

/// Admits requests over a forwarded port. A page of another site could reach the port by resolving its own name to our address, so
/// the Host header is checked.
pub async fn local(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(host, |(name, _)| name);
    if matches!(name, "localhost" | "127.0.0.1" | "[::1]") {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "open this page as http://localhost\n").into_response()
    }
}

/// Admits requests with a bearer token of the cluster and access to the path `/fleet.json` (`nonResourceURLs` of a ClusterRole).
pub async fn by_token(State(client): State<Client>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.strip_prefix("Bearer "));
    let Some(token) = token.map(str::to_owned) else {
        let text = "a bearer token of the cluster is needed: kubectl create token NAME, or forward a port to the pod\n";
        return (StatusCode::UNAUTHORIZED, text).into_response();
    };
    match may_see(client, token).await {
        Ok(Verdict::Yes) => next.run(request).await,
        Ok(Verdict::Unknown) => {
            (StatusCode::UNAUTHORIZED, "the API server does not know this token\n").into_response()
        }
        Ok(Verdict::No(user)) => {
            let text = format!("{user} may not get the nonResourceURL {PATH}: a ClusterRole has to say so\n");
            (StatusCode::FORBIDDEN, text).into_response()
        }
        Err(error) => {
            tracing::warn!(%error, "cannot ask the API server who asks for the fleet page");
            (StatusCode::BAD_GATEWAY, "the API server does not say who you are\n").into_response()
        }
    }
}

enum Verdict {
    Yes,
    No(String),
    Unknown,
}

async fn may_see(client: Client, token: String) -> Result<Verdict, kube::Error> {
    let review = TokenReview {
        spec: TokenReviewSpec { token, ..TokenReviewSpec::default() },
        ..TokenReview::default()
    };
    let reviews: Api<TokenReview> = Api::all(client.clone());
    let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
    let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
        return Ok(Verdict::Unknown);
    };
    let name = user.username.clone().unwrap_or_default();
    let attributes = NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
    let access = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client);
    let status = reviews.create(&PostParams::default(), &access).await?.status.unwrap_or_default();
    Ok(if status.allowed { Verdict::Yes } else { Verdict::No(name) })
}
